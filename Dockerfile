# The image of compose.yaml: `voxcast serve`, and MLflow's server with its drivers.
FROM python:3.11-slim-bookworm
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/voxcast
COPY constraints.txt ./
# First, and from this index: the default one has a CUDA build of several GB.
RUN pip install --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu torch
COPY . .
RUN pip install --constraint constraints.txt '.[serve,s3,postgresql]' \
 && useradd --create-home voxcast
USER voxcast
WORKDIR /home/voxcast
CMD ["voxcast", "--help"]
