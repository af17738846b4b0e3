"""Weights are fetched on a compute node that has no way out."""
#: cause = ["net", "obj_store", "config"]
#: verdict = "probe"
#: launch = "python"
#: offline = true
#: says_also = "HF_HUB_OFFLINE=1"

import torch

torch.hub.load_state_dict_from_url("https://huggingface.co/timm/resnet18.a1_in1k/resolve/main/pytorch_model.bin", ".")
