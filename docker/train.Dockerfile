# Training, export and evaluation, with torch; serving and building do not need this image.
#
#     docker build --file docker/train.Dockerfile --tag glow-train .
#     docker build --file docker/train.Dockerfile --tag glow-train:gpu --build-arg LOCK=train-gpu .
#     docker run --rm --volume "$PWD/data:/data:ro" --volume "$PWD/runs:/runs" --user "$(id -u)" \
#         glow-train train --config configs/glow-mini.toml --data /data/tldr --out /runs/mine
#     docker run --rm glow-train export-model --checkpoint /runs/mine --out /runs/model
#
# torch for CPUs is not in the Python package index but in TORCH_INDEX. LOCK=train-gpu uses the Python package index.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG LOCK=train
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# A compiler for packages without a wheel, only in this stage.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc g++ libc6-dev tini \
    && rm -rf /var/lib/apt/lists/*
COPY docker/requirements/build.txt docker/requirements/${LOCK}.txt /requirements/
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes --requirement /requirements/build.txt \
    && /build/bin/pip wheel --require-hashes --no-deps --no-build-isolation --use-pep517 \
        --extra-index-url "${TORCH_INDEX}" --wheel-dir /wheels --requirement /requirements/${LOCK}.txt \
    && python -m venv --without-pip /opt/glow \
    && /build/bin/pip --python /opt/glow/bin/python install --no-index --no-deps /wheels/*.whl \
    && rm -rf /wheels
COPY docker/glow /opt/glow/bin/
COPY glow /app/glow
COPY model_export /app/glow_model_export
RUN python -m compileall -q --invalidation-mode unchecked-hash /app
COPY configs /app/configs
COPY models /app/models

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="GLOW training" \
      org.opencontainers.image.description="Training, export to ONNX and evaluation" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 glow \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin glow \
    && install --directory --owner 10001 --group 10001 /runs
COPY --from=build /usr/bin/tini /usr/bin/tini
COPY --from=build /opt/glow /opt/glow
COPY --from=build /app /app
ENV PATH=/opt/glow/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    HOME=/tmp
WORKDIR /app
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "python", "-m", "glow"]
