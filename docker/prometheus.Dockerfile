# Prometheus from Debian, with GLOW's alerts and the replicas of docker-compose.yml as targets.
ARG DEBIAN_IMAGE=debian:bookworm-slim
FROM ${DEBIAN_IMAGE}
LABEL org.opencontainers.image.title="GLOW Prometheus" \
      org.opencontainers.image.description="Prometheus that watches the replicas" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install --yes --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner 10001 --group 10001 /prometheus
COPY docker/prometheus.yml monitoring/alerts.yml /etc/prometheus/
COPY docker/ready.sh /
USER 10001:10001
EXPOSE 9090
ENTRYPOINT ["prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus", "--storage.tsdb.retention.time=15d", "--web.listen-address=0.0.0.0:9090"]
