# An image with the built repository, for every host of a job. See docker-compose.yml.
FROM node:22-bookworm-slim

# The default backend multiplies matrices with it.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends libopenblas0-pthread \
  && rm -rf /var/lib/apt/lists/*

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
COPY packages/layers/package.json packages/layers/
COPY packages/models/package.json packages/models/
COPY packages/launcher/package.json packages/launcher/
COPY packages/launcher/bin packages/launcher/bin
RUN npm ci --ignore-scripts --no-audit --no-fund

COPY . .
RUN npm run build

# Both images have a user with the number 1000. What it writes survives in volumes on these folders.
RUN install --directory --owner 1000 --group 1000 logs checkpoints
ENV PATH=/tsrun/node_modules/.bin:$PATH

USER node
EXPOSE 29500
CMD ["tsrun", "--help"]
