# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
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
FROM gcr.io/distroless/cc-debian12:nonroot
# the names by which ARC's charts and listener pods call it
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/impresario"]
