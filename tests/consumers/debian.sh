#!/bin/sh
# usage: debian.sh BUILD CPACK FOLDER: makes the Debian packages and looks into them.
set -e
build=$1 cpack=$2 folder=$3
rm -rf "$folder"
"$cpack" --config "$build/CPackConfig.cmake" -G DEB -B "$folder" > /dev/null
package=$(find "$folder" -maxdepth 1 -name 'dodona_*.deb')
dpkg-deb --info "$package" | grep -E '^ (Package|Version|Depends|Recommends):'
contents=$(dpkg-deb --contents "$package")
for file in usr/bin/dodona usr/include/dodona/op.h usr/lib/cmake/dodona/dodonaConfig.cmake usr/lib/libdodona usr/share/man/man1/dodona.1 \
  usr/share/bash-completion/completions/dodona usr/share/zsh/site-functions/_dodona usr/share/doc/dodona/ops.md; do
  case $contents in *"./$file"*) ;; *) echo "the package lacks $file" >&2; exit 1 ;; esac
done
# What needs OpenMPI is apart.
case $(dpkg-deb --field "$package" Depends) in *mpi*) echo "the package depends on MPI" >&2; exit 1 ;; esac
case $contents in *libdodona_mpi*) echo "the package has the module of dodona-mpi" >&2; exit 1 ;; esac
if [ -e "$build/libdodona_mpi.so" ]; then
  module=$(find "$folder" -maxdepth 1 -name 'dodona-mpi_*.deb')
  case $(dpkg-deb --contents "$module") in *./usr/lib/libdodona_mpi.so*) ;; *) echo "dodona-mpi lacks its module" >&2; exit 1 ;; esac
  case $(dpkg-deb --field "$module" Depends) in *"dodona (="*) ;; *) echo "dodona-mpi does not depend on dodona" >&2; exit 1 ;; esac
  case $(dpkg-deb --field "$module" Depends) in *libopenmpi*) ;; *) echo "dodona-mpi does not depend on OpenMPI" >&2; exit 1 ;; esac
fi
