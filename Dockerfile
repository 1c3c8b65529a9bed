# One image for the API, the workers and the migrations:
#   docker build --tag protoquad .
# On an index whose torch is a CUDA build that is gigabytes of CUDA packages. A folder with a CPU build of torch is
# preferred to it: docker build --build-context wheels=FOLDER --tag protoquad .
# The base is one release and not whatever is newest on the day of the build. A mirror, or a digest:
# --build-arg PYTHON_IMAGE=registry.example.org/python@sha256:...
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# Empty unless the build brings a context of this name.
FROM scratch AS wheels

# The dependencies alone: the layer below is made anew when they change, not with every line of pyproject.toml.
FROM ${PYTHON_IMAGE} AS requirements
COPY pyproject.toml /
RUN python -c 'import tomllib; print(*tomllib.load(open("/pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
    > /requirements.txt

FROM ${PYTHON_IMAGE} AS dependencies
# Where packages come from, if not from the default index. Known to the stages that build, not to the image.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=/var/cache/pip
RUN python -m venv /opt/protoquad
COPY --from=requirements /requirements.txt /
COPY constraints.txt /
RUN --mount=type=cache,target=/var/cache/pip --mount=from=wheels,target=/wheels \
    /opt/protoquad/bin/pip install --find-links /wheels --constraint /constraints.txt --requirement /requirements.txt

FROM dependencies AS package
COPY pyproject.toml README.md /source/
COPY bench /source/bench
COPY core /source/core
COPY engine /source/engine
COPY messaging /source/messaging
COPY learners /source/learners
COPY migrations /source/migrations
COPY protoquad /source/protoquad
COPY service /source/service
COPY store /source/store
COPY workers /source/workers
RUN --mount=type=cache,target=/var/cache/pip \
    /opt/protoquad/bin/pip install --no-deps --prefix /package /source

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/protoquad --shell /usr/sbin/nologin protoquad \
    && install --directory --mode 0700 --owner protoquad --group protoquad /var/lib/protoquad /var/cache/protoquad
# Two layers: a release that changes no dependency is a download of some hundred kilobytes.
COPY --from=dependencies /opt/protoquad /opt/protoquad
COPY --from=package /package /opt/protoquad
COPY --chmod=0755 deploy/healthcheck.py /opt/protoquad/bin/healthcheck
# Prepared backbones, and what one without packaged weights downloads, go to /var/cache/protoquad; nothing else is
# written but to /tmp and to the home.
ENV PATH=/opt/protoquad/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_WAIT_POLICY=PASSIVE \
    HF_HOME=/var/cache/protoquad/huggingface \
    TORCH_HOME=/var/cache/protoquad/torch \
    MPLCONFIGDIR=/tmp/matplotlib \
    PROTOQUAD_HOME=/var/lib/protoquad \
    PROTOQUAD_CACHE=/var/cache/protoquad/backbones \
    PROTOQUAD_HOST=0.0.0.0 \
    PROTOQUAD_LOG_FORMAT=json
USER protoquad
WORKDIR /var/lib/protoquad
EXPOSE 8000
# Of whichever the container runs, `serve` or `worker`.
HEALTHCHECK --interval=20s --timeout=15s --start-period=5m --retries=3 CMD ["healthcheck"]
ENTRYPOINT ["protoquad"]
CMD ["serve"]
ARG RELEASE=unreleased
LABEL org.opencontainers.image.title=protoquad org.opencontainers.image.version=$RELEASE
