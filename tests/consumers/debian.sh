#!/bin/sh
# usage: debian.sh BUILD CPACK FOLDER: makes the Debian package and looks into it.
set -e
build=$1 cpack=$2 folder=$3
rm -rf "$folder"
"$cpack" --config "$build/CPackConfig.cmake" -G DEB -B "$folder" > /dev/null
package=$(find "$folder" -maxdepth 1 -name '*.deb')
dpkg-deb --info "$package" | grep -E '^ (Package|Version|Depends|Recommends):'
contents=$(dpkg-deb --contents "$package")
for file in usr/bin/dodona usr/include/dodona/op.h usr/lib/cmake/dodona/dodonaConfig.cmake usr/lib/libdodona usr/share/man/man1/dodona.1 \
  usr/share/bash-completion/completions/dodona usr/share/zsh/site-functions/_dodona usr/share/doc/dodona/ops.md; do
  case $contents in *"./$file"*) ;; *) echo "the package lacks $file" >&2; exit 1 ;; esac
done
