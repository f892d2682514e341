# Each recipe is one step of .ci/run, to be run by hand just the same.
# Needs Rust, Go, a C compiler, make and git; everything else is set up here. The images and the cluster take Debian
# packages too, which root gets without asking and others are told of.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Third-party conformance data that some tests read; see tests/README.md.
export SALLYPORT_CORPORA ?= $(abspath ../shared/corpora)

help: ## Say what there is
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Builds of everything, each with all members: with some of them their dependencies have other features, and half of
# them are built again.
demo: ## Build, run the four services on loopback, send the sample pods through
	cargo build --locked --workspace --bins
	tests/demo

test: tools ## All tests below the cluster tier, against a real kube-apiserver
	tests/testbed/packages prometheus
	SALLYPORT_TESTBED_BIN="$$(tests/testbed/tools | tail -n 1)" SALLYPORT_CHART_TOOLS="$$(tests/testbed/tools chart | tail -n 1)" \
		tests/run

tools: ## Build kube-apiserver, etcd, kubectl and cel-oracle from pinned Go modules, once
	@tests/testbed/tools > /dev/null
	@tests/testbed/tools cel > /dev/null

images: ## Build the services' container images into target/images, without a container engine
	images/build

e2e: ## Install the suite on a real cluster, started for it or that of KUBECONFIG, and put it to the test
	tests/e2e

soak: tools ## The scenarios that take too long for make e2e or make test, and those of make e2e
	tests/e2e --include-ignored
	cargo build --locked --workspace --bins
	SALLYPORT_TESTBED_BIN="$$(tests/testbed/tools | tail -n 1)" \
		cargo test --locked -p sallyport-tests --test rotation -- --ignored --nocapture
	cargo test --locked -p sallyport-cert-rotator --test kubernetes -- --ignored --nocapture
	cargo test --locked -p sallyport-cel --test conformance -- --ignored --nocapture

schema: tools ## Write the policy engine's table of Kubernetes' types anew, from a real kube-apiserver
	SALLYPORT_TESTBED_BIN="$$(tests/testbed/tools | tail -n 1)" cargo run --locked -p sallyport-tests --bin schema

lint: ## Formatting, clippy, the direction of dependencies, scripts, licences
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --quiet --workspace --no-deps
	tests/dependencies
	cargo run --quiet --locked -p sallyport-layers
	tests/contract
	tests/testbed/packages shellcheck
	git grep --untracked -l '^#!/usr/bin/env bash$$' ':!*.md' | xargs shellcheck
	PATH="$$(tests/testbed/tools rust | tail -n 1):$$PATH" cargo deny --locked check bans licenses sources

bench: ## Load the path with the dist profile and print the figures
	cargo build --locked --profile dist $(addprefix -p sallyport-,webhook mutator validator cert-rotator cli)
	cargo run --locked --profile dist -p sallyport-tests --bin bench -- target/dist
	cargo test --locked --profile dist -p sallyport-document --test documents -- --ignored --nocapture
	cargo test --locked --profile dist -p sallyport-cel --test tables -- --ignored --nocapture --test-threads 1
	cargo test --locked --profile dist -p sallyport-policy --test speed -- --ignored --nocapture --test-threads 1

fuzz: ## Feed each fuzz target for a minute, or SECONDS_EACH; needs the nightly toolchain and cargo-fuzz
	cd fuzz && for target in $$(cargo +nightly fuzz list); do \
		mkdir -p ../target/fuzz/corpus/$$target && cp -n corpus/$$target/* ../target/fuzz/corpus/$$target/ && \
		CARGO_TARGET_DIR=../target/fuzz cargo +nightly fuzz run -O -a -s none $$target ../target/fuzz/corpus/$$target -- \
			-max_total_time=$${SECONDS_EACH:-60} -timeout=5 -max_len=4096 -print_final_stats=1 || exit 1; done

clean: ## Remove what was built here
	cargo clean

.PHONY: help demo test tools images e2e soak schema lint bench fuzz clean
