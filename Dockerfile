# The control plane and its command line. No shell tools, no credentials, no worker.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# SQLite is compiled in; gcc comes with the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --profile shipped --locked -p converge -p conctl \
 && install -D -t /out target/shipped/converge target/shipped/conctl

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/converge --create-home converge
COPY --from=build /out/ /usr/local/bin/
USER 10001
WORKDIR /var/lib/converge
VOLUME /var/lib/converge
EXPOSE 8080 9090
# Inside a container loopback reaches nobody. Leaving it takes TLS client certificates (for the API, or a token), or `--insecure` said out loud; see `converge dev --help`.
ENTRYPOINT ["converge"]
CMD ["dev", "--data-dir", "/var/lib/converge"]
