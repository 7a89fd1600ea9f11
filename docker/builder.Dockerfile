# The builder: builds and publishes index versions, with the default model and the reader of the sample documents.
#
#     docker build --file docker/builder.Dockerfile --tag glow-builder .
#     docker build --file docker/builder.Dockerfile --tag glow-builder:gpu --build-arg LOCK=builder-gpu .
#
# service.Dockerfile explains the steps.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG LOCK=builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*
COPY docker/requirements/build.txt docker/requirements/${LOCK}.txt /requirements/
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes --requirement /requirements/build.txt \
    && /build/bin/pip wheel --require-hashes --no-deps --no-build-isolation --use-pep517 \
        --wheel-dir /wheels --requirement /requirements/${LOCK}.txt \
    && python -m venv --without-pip /opt/glow \
    && /build/bin/pip --python /opt/glow/bin/python install --no-index --no-deps /wheels/*.whl \
    && rm -rf /wheels
COPY docker/glow /opt/glow/bin/
COPY glow /app/glow
COPY index_builder /app/glow_index_builder
COPY index_builder/__main__.py /app/index_builder/
COPY model_export /app/glow_model_export
COPY demo /app/glow_demo
COPY docker/rebuild.sh docker/sample.sh /app/
RUN rm -rf /app/glow/nn /app/glow/training \
    && python -m compileall -q --invalidation-mode unchecked-hash /app
COPY models /app/models

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="GLOW builder" \
      org.opencontainers.image.description="Documents to a verified, gated and published index version" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 glow \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin glow \
    && install --directory --owner 10001 --group 10001 /index /logs /ingest /models
COPY --from=build /usr/bin/tini /usr/bin/tini
COPY --from=build /opt/glow /opt/glow
COPY --from=build /app /app
ENV PATH=/opt/glow/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    HOME=/tmp \
    GLOW_MODELS=/models \
    INDEX_ROOT=/index
WORKDIR /app
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "python", "-m", "glow"]
