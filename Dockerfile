# One image for the API, the workers and the migrations:
#   docker build --tag protoquad .
# If the package index has a CUDA build of torch, the image contains gigabytes of CUDA packages. Wheels in a local folder
# take precedence, for example a CPU build of torch: docker build --build-context wheels=FOLDER --tag protoquad .
# The base image is pinned to one release. For a mirror or a digest:
# --build-arg PYTHON_IMAGE=registry.example.org/python@sha256:...
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# Empty unless the build has a context of this name.
FROM scratch AS wheels

# Only the dependencies: the layer below is rebuilt when they change, not whenever pyproject.toml does.
FROM ${PYTHON_IMAGE} AS requirements
COPY pyproject.toml /
COPY client/pyproject.toml /client/
RUN python -c 'import tomllib; files = "/pyproject.toml", "/client/pyproject.toml"; \
    projects = [tomllib.load(open(file, "rb"))["project"] for file in files]; \
    needed = [name for project in projects for name in project["dependencies"]]; \
    needed += projects[0]["optional-dependencies"]["otel"]; \
    print(*(name for name in needed if name != "protoquad-client"), sep="\n")' \
    > /requirements.txt

FROM ${PYTHON_IMAGE} AS dependencies
# The package index, if not the default one. Used in build stages only; not stored in the image.
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
COPY client /source/client
COPY console /source/console
COPY core /source/core
COPY engine /source/engine
COPY learners /source/learners
COPY messaging /source/messaging
COPY tracing /source/tracing
COPY migrations /source/migrations
COPY protoquad /source/protoquad
COPY service /source/service
COPY store /source/store
COPY workers /source/workers
RUN --mount=type=cache,target=/var/cache/pip \
    /opt/protoquad/bin/pip install --no-deps --prefix /package /source/client /source

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/protoquad --shell /usr/sbin/nologin protoquad \
    && install --directory --mode 0700 --owner protoquad --group protoquad /var/lib/protoquad /var/cache/protoquad
# Two layers: a release that changes no dependency adds a few hundred kilobytes.
COPY --from=dependencies /opt/protoquad /opt/protoquad
COPY --from=package /package /opt/protoquad
COPY --chmod=0755 deploy/healthcheck.py /opt/protoquad/bin/healthcheck
# Prepared backbones and downloaded weights go to /var/cache/protoquad. Everything else is written to /tmp or the home.
ENV PATH=/opt/protoquad/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_WAIT_POLICY=PASSIVE \
    HF_HOME=/var/cache/protoquad/huggingface \
    TORCH_HOME=/var/cache/protoquad/torch \
    PROTOQUAD_HOME=/var/lib/protoquad \
    PROTOQUAD_CACHE=/var/cache/protoquad/backbones \
    PROTOQUAD_HOST=0.0.0.0 \
    PROTOQUAD_LOG_FORMAT=json
USER protoquad
WORKDIR /var/lib/protoquad
EXPOSE 8000
# For both `serve` and `worker`.
HEALTHCHECK --interval=20s --timeout=15s --start-period=5m --retries=3 CMD ["healthcheck"]
ENTRYPOINT ["protoquad"]
CMD ["serve"]
ARG RELEASE=unreleased
LABEL org.opencontainers.image.title=protoquad org.opencontainers.image.version=$RELEASE
