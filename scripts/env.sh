# Sourced by the Makefile's recipes and .ci/run: where builds go, and the RocksDB that they link.
export WEIR_CACHE=${WEIR_CACHE:-$HOME/.cache/weir}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$WEIR_CACHE/target}
export ROCKSDB_STATIC=1
ROCKSDB_LIB_DIR=$(bash "$(dirname "${BASH_SOURCE[0]}")/rocksdb.sh")
export ROCKSDB_LIB_DIR
