# The server in an image: built with the repository's own scripts, run as a user of its own.
FROM rust:1-bookworm AS build
WORKDIR /weir
COPY . .
ENV WEIR_CACHE=/cache CARGO_TARGET_DIR=/cache/target
# Half an hour from scratch; RocksDB and what cargo built stay in the cache between builds.
RUN --mount=type=cache,target=/cache --mount=type=cache,target=/usr/local/cargo/registry \
    make build && cp /cache/target/release/weir /usr/local/bin/weir

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libstdc++6 postgresql-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --home /var/lib/weir --create-home weir
COPY --from=build /usr/local/bin/weir /usr/local/bin/weir
USER weir
VOLUME /var/lib/weir
EXPOSE 4566 5691
# Beyond loopback Weir listens only with users: WEIR_AUTH_USERS=name:password
ENTRYPOINT ["weir", "serve", "--data-dir", "/var/lib/weir/data", "--listen", "0.0.0.0:4566", "--http", "0.0.0.0:5691"]
