# What a person does with Weir: see README.md.
.PHONY: demo test build bench lint unit simulate clean-cache
SHELL := /bin/bash
ENV := source scripts/setup.sh && source scripts/env.sh

# The main job, end to end: a pipeline that is killed in mid-stream and reconciles.
demo:
	@$(ENV) && cargo build --profile demo --bin weir && bash demo/run.sh "$$CARGO_TARGET_DIR/demo/weir"

# Everything that is tested.
test: lint unit

lint:
	@$(ENV) && cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings

unit:
	@$(ENV) && bash scripts/hdfs.sh >/dev/null && cargo test --workspace

# The whole engine on one thread, from so many seeds, half of them new: see README.md. Part of the tests with fewer.
SEEDS := 20000
simulate:
	@$(ENV) && WEIR_SIM_SEEDS=$(SEEDS) cargo test --workspace --lib simulation::no_schedule -- --nocapture

# The shipped binary, fully optimized (about half an hour from scratch).
build:
	@$(ENV) && cargo build --release --bin weir && echo "built $$CARGO_TARGET_DIR/release/weir"

# Speed: tables on the terminal, figures in bench/results: state by itself, recovery after SIGKILL,
# how costs grow, Nexmark. About a quarter of an hour; `make bench BENCH=--full` runs all ways of Nexmark, which takes
# three quarters of an hour more. Not part of the tests.
bench:
	@$(ENV) && cargo build --release --bin weir && weir="$$CARGO_TARGET_DIR/release/weir" \
	  && s3="$$CARGO_TARGET_DIR/s3" && cargo build --release --manifest-path bench/s3/Cargo.toml --target-dir "$$s3" \
	  && mkdir -p bench/results && "$$weir" bench-state --dir "$$(mktemp -u)" --out bench/results/state.json \
	  && python3 bench/recovery.py --weir "$$weir" --s3 "$$s3/release/s3" --out bench/results/recovery.json \
	  && python3 bench/growth.py --weir "$$weir" && python3 bench/checkpoints.py --weir "$$weir" \
	  && python3 bench/nexmark.py --weir "$$weir" $(BENCH)
