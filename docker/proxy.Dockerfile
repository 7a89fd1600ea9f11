# One port in front of the replicas: HAProxy from Debian, with haproxy.cfg.
ARG DEBIAN_IMAGE=debian:bookworm-slim
FROM ${DEBIAN_IMAGE}
LABEL org.opencontainers.image.title="GLOW proxy" \
      org.opencontainers.image.description="HAProxy that asks another replica where one is gone" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install --yes --no-install-recommends haproxy \
    && rm -rf /var/lib/apt/lists/*
COPY docker/haproxy.cfg /etc/haproxy/glow.cfg
COPY docker/ready.sh /
USER 10001:10001
EXPOSE 8080
# A graceful stop: requests in flight are completed.
STOPSIGNAL SIGUSR1
ENTRYPOINT ["haproxy", "-W", "-db", "-f", "/etc/haproxy/glow.cfg"]
