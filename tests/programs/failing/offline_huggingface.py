"""A model is fetched from the Hugging Face Hub on a compute node that has no way out."""
#: cause = ["net"]
#: verdict = "stop"
#: launch = "python"
#: offline = true
#: needs = "huggingface_hub"
#: says_also = "HF_HUB_OFFLINE=1"

from huggingface_hub import snapshot_download

snapshot_download("gpt2", cache_dir="cache")
