# syntax=docker/dockerfile:1

# pinned, so that the same source gives the same image; renewed by hand or by a bot
ARG RUST_IMAGE=rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f

FROM ${RUST_IMAGE} AS build
WORKDIR /source
COPY . .
# what the controller calls itself by at GitHub: --build-arg IMPRESARIO_COMMIT=$(git rev-parse HEAD)
ARG IMPRESARIO_COMMIT
# the caches stay out of the image; the binary is copied out of them
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    IMPRESARIO_COMMIT=$IMPRESARIO_COMMIT cargo build --profile dist --locked --bin impresario \
    && mkdir /out \
    && cp target/dist/impresario /out/impresario \
    && ln -s /impresario /out/manager \
    && ln -s /impresario /out/ghalistener

# glibc, root certificates and a user that is not root; no shell
FROM ${RUNTIME_IMAGE}
# the names by which ARC's charts and listener pods call it
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/impresario"]
