"""Names of the files and folders of a registered model.

A model is a folder that MLflow wrote, with a bundle in ``artifacts/bundle``; see
`voxcast.serving.bundle`.
"""

ARTIFACTS = "artifacts"  # folder of MLflow's models, with the bundle's in it
FOLDER = "bundle"  # name of the folder among the model's files
INDEX = "bundle.json"
FORECASTERS = "forecasters"
TRAINED_ON = "trained_on"
CARD = "model_card.md"  # beside the bundle
BUNDLE = f"{ARTIFACTS}/{FOLDER}"
REPAIR = (
    "`voxcast models rollback` returns to an older version, if any; `voxcast learn` trains again"
)
