#!/bin/sh
# The PTX of every defect, as nvcc compiles it; files are named without their folders.
cd "$(dirname "$0")" || exit 1
for file in *.cu; do
  nvcc -ptx -lineinfo -arch=sm_90a -std=c++20 "$file" -o "${file%.cu}.ptx" || exit 1
  sed -i 's#\(\.file[\t ]*[0-9]*[\t ]*"\).*/#\1#' "${file%.cu}.ptx"
done
