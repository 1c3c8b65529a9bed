#!/usr/bin/env bash
# All published accuracy results, one command after another. Interrupted, it continues where it stopped.
# usage: bench/reproduce.sh path/to/cub200 [folder for the results] [path/to/another folder of class folders]
set -euo pipefail
data=$1
out=${2:-bench/results}
other=${3:-}
fscil() { protoquad bench fscil --dataset cub200 --data "$data" --out "$out" "$@"; }

# The pretrained network without training, with each metric
for metric in euclidean cosine power-cosine whitened; do
  fscil --method ncm --preset no-base --set base.metric="$metric"
done

# After a base session: frozen baselines, other methods, ours
fscil --method ncm
fscil --method teen
fscil --method finetune
fscil --method protoquad
for draw in 1 2 3; do
  fscil --method ncm --draw "$draw"
  fscil --method protoquad --draw "$draw"
done

# Ablations: a name, then settings
ablation() {
  local settings=(--set "name=ablation-$1")
  shift
  for setting in "$@"; do settings+=(--set "$setting"); done
  fscil --method protoquad "${settings[@]}"
}
ablation neither incremental.epochs=0 incremental.refit=false
ablation no-training incremental.epochs=0
ablation no-refit incremental.refit=false
ablation no-prior incremental.prior_shots=0
ablation prior-neighbours incremental.prior=neighbours incremental.prior_shots=3
ablation no-calibration incremental.calibration=false
ablation no-drift incremental.drift=false
ablation no-gate gate=false
ablation no-blend base.blend=1.0
for loss in contrastive triplet quadruplet prototypical-quadruplet cross-entropy; do
  ablation "loss-$loss" incremental.loss="$loss"
done
ablation margins-0.5-1.0 incremental.margins.query=0.5 incremental.margins.negatives=1.0
ablation margins-0-0 incremental.margins.query=0 incremental.margins.negatives=0
ablation lambda-0 incremental.prototype_rate=0
ablation lambda-0.3 incremental.prototype_rate=0.3
ablation copies-1 base.copies=1
ablation copies-10 base.copies=10
ablation fraction-0.05 incremental.fraction=0.05
ablation fraction-0.2 incremental.fraction=0.2

# Larger images
fscil --method ncm --backbone efficientnet_lite0@288
fscil --method protoquad --backbone efficientnet_lite0@288

# A larger backbone
fscil --method ncm --backbone efficientnet_lite2
fscil --method protoquad --backbone efficientnet_lite2

# The same on larger images, and both networks as one; in few views, as both together take long
fscil --method ncm --backbone efficientnet_lite2@320
fscil --method protoquad --backbone efficientnet_lite2@320
fscil --method ncm --backbone efficientnet_lite0@288+efficientnet_lite2@320 --set views=2
fscil --method protoquad --backbone efficientnet_lite0@288+efficientnet_lite2@320 --set views=2

# Five shots without training, and the cost of a session
protoquad bench few-shots --data "$data" --out "$out"
protoquad bench views "$data" --out "$out"
protoquad bench cost --out "$out"

# Without a base session: images of the other folder are the far strangers, and the other way round
newcomer() {
  local name=newcomer-$(basename "$1")-$3
  protoquad bench newcomer --data "$1" --far "$2" --scene "$3" --draws "$4" --out "$out" --set name="$name"
}
# The ablations once more on a second domain
grocery() {
  local name=$1
  shift
  protoquad bench fscil --dataset grocery --data "$other" --out "$out" --set name="grocery-$name" "$@"
}
if [ -n "$other" ]; then
  newcomer "$data" "$other" 10x5 20
  newcomer "$data" "$other" 50x5 3
  newcomer "$other" "$data" 10x5 16
  newcomer "$other" "$data" 37x5 3
  protoquad bench newcomer --data "$other" --scene 37x5 --draws 3 --out "$out" --set name=newcomer-grocery-37x5-replay-off --set replay=false
  grocery protoquad
  grocery no-training --set incremental.epochs=0
  grocery loss-prototypical-quadruplet --set incremental.loss=prototypical-quadruplet
  grocery loss-cross-entropy --set incremental.loss=cross-entropy
  grocery margins-0-0 --set incremental.margins.query=0 --set incremental.margins.negatives=0
  grocery lambda-0 --set incremental.prototype_rate=0
  grocery copies-1 --set base.copies=1
  grocery no-calibration --set incremental.calibration=false
  grocery fraction-0.1 --set incremental.fraction=0.1
  grocery no-drift --set incremental.drift=false
fi
