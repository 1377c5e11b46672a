#!/bin/sh
# usage: pkg_config.sh PREFIX SOURCES FOLDER CC CXX: builds the consumers with nothing but pkg-config, and runs them.
set -e
prefix=$1 sources=$2 folder=$3 cc=$4 cxx=$5
found=$(find "$prefix" -name dodona-static.pc)
PKG_CONFIG_PATH=$(dirname "$found")
export PKG_CONFIG_PATH
mkdir -p "$folder"
# shellcheck disable=SC2046 # flags are words
"$cxx" -std=c++20 "$sources/consumer_cxx20.cpp" $(pkg-config --cflags --libs dodona-static) -Wl,-rpath,"$(dirname "$PKG_CONFIG_PATH")" -o "$folder/cxx20"
"$folder/cxx20"
if [ -f "$PKG_CONFIG_PATH/dodona.pc" ]; then
  # shellcheck disable=SC2046
  "$cc" -std=c90 "$sources/consumer_c.c" $(pkg-config --cflags --libs dodona) -Wl,-rpath,"$(dirname "$PKG_CONFIG_PATH")" -o "$folder/c"
  "$folder/c"
fi
