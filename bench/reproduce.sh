#!/usr/bin/env bash
# Every figure of the README, one command after another; stopped and started again, it goes on where it was.
# usage: bench/reproduce.sh path/to/cub200 [folder for the results]
set -euo pipefail
data=$1
out=${2:-bench/results}
fscil() { protoquad bench fscil --dataset cub200 --data "$data" --out "$out" "$@"; }

# The pretrained network without any training, each metric
for metric in euclidean cosine power-cosine whitened; do fscil --method ncm --metric "$metric" --no-base; done

# After a base session: frozen baselines, rivals' ways, ours
fscil --method ncm
fscil --method teen
fscil --method finetune
fscil --method protoquad
for draw in 1 2 3; do
  fscil --method ncm --draw "$draw"
  fscil --method protoquad --draw "$draw"
done

# Ablations of ours
ablation() { local name=$1; shift; fscil --method protoquad --name "ablation-$name" "$@"; }
ablation no-training --set incremental.epochs=0
ablation no-prior --set incremental.prior_shots=0
ablation prior-neighbours --set incremental.prior=neighbours --set incremental.prior_shots=3
ablation no-calibration --no-calibration
ablation no-drift --no-drift
ablation no-gate --no-gate
ablation no-blend --set base.blend=1.0
for loss in contrastive triplet quadruplet prototypical-quadruplet cross-entropy-quadruplet; do
  ablation "loss-$loss" --loss "$loss"
done
ablation margins-0.5-1.0 --alpha1 0.5 --alpha2 1.0
ablation margins-0-0 --alpha1 0 --alpha2 0
ablation lambda-0 --lambda 0
ablation lambda-0.3 --lambda 0.3
ablation copies-1 -B 1
ablation copies-10 -B 10
ablation fraction-0.05 --fraction 0.05
ablation fraction-0.2 --fraction 0.2

# A larger backbone
fscil --method ncm --backbone efficientnet_lite2
fscil --method protoquad --backbone efficientnet_lite2

# What five shots are worth by themselves
protoquad bench few-shots --data "$data" --out "$out"

# What a session costs
protoquad bench cost --out "$out"
