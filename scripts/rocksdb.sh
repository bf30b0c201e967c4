#!/usr/bin/env bash
# Builds RocksDB once, as a unity build of eight translation units, into a cache outside the clone
# (about 4 minutes on two cores; the crate's own build takes about 20). Prints the cache directory.
# Cargo then links it by ROCKSDB_LIB_DIR and ROCKSDB_STATIC=1; see scripts/env.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${WEIR_CACHE:-$HOME/.cache/weir}
cargo fetch --quiet >&2
src_of() { cargo metadata --format-version 1 --quiet | tr ',' '\n' | grep -oE "\"manifest_path\":\"[^\"]*/$1-[0-9][^\"/]*/Cargo.toml" | head -1 | sed 's/.*:"//; s|/Cargo.toml||'; }
crate=$(src_of librocksdb-sys)
out=$cache/$(basename "$crate" | tr '+' '_')-unity-O2
if [ -f "$out/librocksdb.a" ]; then echo "$out"; exit 0; fi
# Two builds at once (a test and a demo) are one.
mkdir -p "$cache"; exec 9>"$cache/rocksdb.lock"; flock 9
if [ -f "$out/librocksdb.a" ]; then echo "$out"; exit 0; fi
lz4=$(src_of lz4-sys); zstd=$(src_of zstd-sys)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
echo "building RocksDB once into $out (about 4 minutes)" >&2
grep -v 'util/build_version.cc' "$crate/rocksdb_lib_sources.txt" | grep . >"$work/sources"
split -n r/8 -d "$work/sources" "$work/part"
for part in "$work"/part0*; do sed "s|^|#include \"$crate/rocksdb/|; s|\$|\"|" "$part" >"$part.cc"; done
cp "$crate/build_version.cc" "$work/part_version.cc"
compile() {
  g++ -std=c++20 -O2 -fPIC -w -march=x86-64-v2 -msse4.2 -mpclmul -include cstdint \
    -I"$crate/rocksdb/include" -I"$crate/rocksdb" -I"$crate" -I"$lz4/liblz4/lib" -I"$zstd/zstd/lib" \
    -DLZ4=1 -DZSTD=1 -DNDEBUG=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DOS_LINUX \
    -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DROCKSDB_SCHED_GETCPU_PRESENT \
    -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT \
    -c "$1" -o "${1%.cc}.o" || exit 255
  echo "  RocksDB: $(basename "$1") compiled" >&2
}
export -f compile; export crate lz4 zstd
ls "$work"/part*.cc | xargs -P2 -I{} bash -c 'compile {}'
mkdir -p "$out"
ar rcs "$work/librocksdb.a" "$work"/*.o
mv "$work/librocksdb.a" "$out/librocksdb.a"   # last, so that a broken build leaves nothing
echo "$out"
