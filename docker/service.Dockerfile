# The service: without torch, compiler and model (an index contains its query encoder); it downloads nothing at startup.
#
#     docker build --file docker/service.Dockerfile --tag glow-service .
#     docker build --file docker/service.Dockerfile --tag glow-service:gpu --build-arg LOCK=service-gpu .
#
# With LOCK=service-gpu the lock file includes CUDA's libraries, so the host needs only the driver.
# PYTHON_IMAGE may be any glibc image with Python 3.11 or newer under the same path in both stages.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG LOCK=service
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*
COPY docker/requirements/build.txt docker/requirements/${LOCK}.txt /requirements/
# Wheels first: the locked setuptools builds source packages, not one that pip would download.
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes --requirement /requirements/build.txt \
    && /build/bin/pip wheel --require-hashes --no-deps --no-build-isolation --use-pep517 \
        --wheel-dir /wheels --requirement /requirements/${LOCK}.txt \
    && python -m venv --without-pip /opt/glow \
    && /build/bin/pip --python /opt/glow/bin/python install --no-index --no-deps /wheels/*.whl \
    && rm -rf /wheels
# Removes numpy's tests, ONNX Runtime's tools, grammars for colored code, and the unused client and downloader of a
# model hub: 46 MB.
RUN find /opt/glow/lib -type d -name tests -path '*/numpy/*' -prune -exec rm -rf {} + \
    && cd /opt/glow/lib/python3*/site-packages/onnxruntime && rm -rf backend datasets quantization tools transformers \
    && find ../pygments/lexers -type f ! -name '_*' -delete \
    && rm -rf /opt/glow/lib/python3*/site-packages/hf_xet* /opt/glow/lib/python3*/site-packages/huggingface_hub*
COPY docker/glow /opt/glow/bin/
COPY glow /app/glow
COPY service /app/glow_service
COPY service/__main__.py /app/service/
COPY docker/ready.sh /app/
RUN rm -rf /app/glow/nn /app/glow/training /app/glow/evaluation \
    && python -m compileall -q --invalidation-mode unchecked-hash /app

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="GLOW service" \
      org.opencontainers.image.description="Search over an index version, on HTTP" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The user owns the folders, and so also new named volumes that are mounted there.
RUN groupadd --gid 10001 glow \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin glow \
    && install --directory --owner 10001 --group 10001 /index /logs /ingest
COPY --from=build /usr/bin/tini /usr/bin/tini
COPY --from=build /opt/glow /opt/glow
COPY --from=build /app /app
ENV PATH=/opt/glow/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    HOME=/tmp \
    GLOW_INDEX_ROOT=/index \
    GLOW_HOST=0.0.0.0 \
    GLOW_PORT=8080
WORKDIR /app
# Compiles the standard library: the official image has no bytecode, and a read-only container would lose 2 s at every start.
RUN PYTHONDONTWRITEBYTECODE= python -c "import glow_service.commands.serve, glow_service.app, multiprocessing.spawn" \
    && rm -rf /tmp/*
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=6s --start-period=60s --retries=3 CMD ["bash", "/app/ready.sh"]
ENTRYPOINT ["/usr/bin/tini", "--", "python", "-m", "glow", "serve"]
