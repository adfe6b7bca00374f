# The names for what one does here. Everything is `cargo xtask …` or plain cargo; `just` is a convenience.

# What there is.
default:
    @just --list

# The three binaries, optimised, in bin/.
build:
    cargo build --release -p converge -p stdworker -p conctl
    mkdir -p bin
    cp "${CARGO_TARGET_DIR:-target}"/release/converge "${CARGO_TARGET_DIR:-target}"/release/stdworker "${CARGO_TARGET_DIR:-target}"/release/conctl bin/

# A control plane and a worker with a few resources, live until Ctrl-C.
demo *args:
    cargo xtask demo {{args}}

# One example, checked and taken down again: just example demo
example name *args:
    cargo xtask example {{name}} {{args}}

# Every test.
test *args:
    cargo xtask test {{args}}

# What CI runs.
ci *args:
    cargo xtask ci {{args}}

# Format, then the cheap checks.
fix:
    cargo fmt --all
    cargo xtask ci --step hygiene --step arrows

# Rust code of the wire from the .proto.
codegen *args:
    cargo xtask codegen {{args}}

# Measurements against a baseline of the same run.
bench *args:
    cargo xtask bench {{args}}

# A release archive in target/dist.
dist:
    cargo xtask dist

# The worker's image.
docker-stdworker tag="stdworker":
    docker build -f Dockerfile.stdworker -t {{tag}} .

# The control plane's image.
docker tag="converge":
    docker build -f Dockerfile -t {{tag}} .
