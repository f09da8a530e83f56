"""Checks Kubernetes objects, a JSON list on stdin, strictly: with the schemas of two versions of
Kubernetes (kubernetes_validate), and with the models of JobSet and Kubeflow Trainer (kubeflow_trainer_api).

Prints a JSON list with the problems of each object: values that a schema refuses, and keys that it does
not have.
"""

import json
import sys

import kubernetes_validate
from kubeflow_trainer_api import models

# The oldest version whose Job has all that the manifests use, and the newest that the package knows.
VERSIONS = ["1.31", kubernetes_validate.latest_version()]

MODELS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): models.JobsetV1alpha2JobSet,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): models.TrainerV1alpha1TrainingRuntime,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob,
}


def lost(given, kept, path):
    """The paths of what a model has not kept."""
    if isinstance(given, dict):
        kept = kept if isinstance(kept, dict) else {}
        return [
            problem
            for key, value in given.items()
            for problem in (
                lost(value, kept[key], f"{path}.{key}") if key in kept else [f"unknown: {path}.{key}"]
            )
        ]
    if isinstance(given, list):
        return [problem for i, value in enumerate(given) for problem in lost(value, kept[i], f"{path}[{i}]")]
    return []


def problems(given):
    try:
        model = MODELS.get((given["apiVersion"], given["kind"]))
        if model is not None:
            return lost(given, model.from_dict(given).to_dict(), given["kind"])
        for version in VERSIONS:
            kubernetes_validate.validate(given, version, strict=True)
        return []
    except Exception as error:  # each model has errors of its own
        return [f"{given['kind']}: {type(error).__name__}: {error}"]


print(json.dumps([problems(given) for given in json.load(sys.stdin)]))
