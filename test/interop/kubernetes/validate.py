"""Checks Kubernetes objects, a JSON list on stdin, against the OpenAPI models of kubeflow_trainer_api.

Prints a JSON list with the problems of each object: values that the models refuse, and keys that they
do not have.
"""

import json
import sys

from kubeflow_trainer_api import models

MODELS = {
    ("v1", "Service"): models.IoK8sApiCoreV1Service,
    ("batch/v1", "Job"): models.IoK8sApiBatchV1Job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): models.JobsetV1alpha2JobSet,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): models.TrainerV1alpha1TrainingRuntime,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob,
    # No model of Volcano's own job: its templates of pods are those of Kubernetes.
    ("v1", "PodTemplate"): models.IoK8sApiCoreV1PodTemplate,
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
        model = MODELS[given["apiVersion"], given["kind"]]
        return lost(given, model.from_dict(given).to_dict(), given["kind"])
    except Exception as error:  # each model has errors of its own
        return [f"{type(error).__name__}: {error}"]


print(json.dumps([problems(given) for given in json.load(sys.stdin)]))
