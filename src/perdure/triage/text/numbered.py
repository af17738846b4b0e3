"""Numbers of a message: codes, which say what happened, stay; those that say which host, rank or shard it was go.

A name with a number glued to it is a host's only where it stands in the place of one (``on vault5``, ``vault5:6379``,
``vault5 is unreachable``), and never where its word is one that has numbers of its own (``cuda11``, ``float32``): two
hosts may stay two messages, but no two codes, and no types or versions of these words, become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import re2

from perdure.triage.text.masking import mask
from perdure.triage.text.patterns import capturing, compiled

_CODE = (
    r"(?i)(\b(?:s?xid(?: ?\([^()]{1,40}\))?|https?(?:/[\d.]+)?(?: status| error| code)*|errno|curl|signal"
    r"|(?:exit|return|error|status|response|result)(?:[ _-]?(?:code|status|value))+|exit(?:ed with)?)\W{1,3})"
    r"(\d{1,5})([.:,;)\]}'\"]*(?:\s|$)|[,;)\]}'\"])"
)
"""A number that is a code: an Xid, an errno, an HTTP status, an exit code, a signal."""
_DIGITS = frozenset(b"0123456789")
_HIDDEN = bytes(range(0x0E, 0x18))
"""In the place of digits that no mask may touch; a log has none of these bytes once it is scrubbed."""
_HIDE, _SHOW = bytes.maketrans(b"0123456789", _HIDDEN), bytes.maketrans(_HIDDEN, b"0123456789")

_COUNTED = (
    "node|host|rank|worker|server|client|replica|peer|instance|pod|rack|bay|slot|lane|disk|volume|gpu|task|job|run|trial"
    "|session|attempt|process|proc|thread|actor|queue|bucket|partition|part|shard|chunk|split|fold|batch|step|iter|epoch"
    "|sample|image|img|file|seed"
)
"""What a log numbers: with a number glued to it, as in node17, it is another of the same. Names that have a number of
their own stay, as sm_90, E1101, CUDA12, float32 or conv2d do.
"""
_NUMBERED = rf"(?i)((?:{_COUNTED})s?_?)\d+\b"
_PADDED = r"\b([a-z]+)(?:0\d+|\d{5,})\b"
"""A number with leading zeros, or of five digits and more, is glued to what is numbered, whatever that is."""

_HOST = r"([a-z][a-z-]*[a-z])(\d{1,4})"
_PLACES = (
    rf"()\b{_HOST}(:<n>(?:[^:\w.]|$)"
    r"|(?:\.[a-z][a-z\d-]*)*\.(?:local|localdomain|internal|lan|edu|com|org|net)(?:[^.\w]|$))",
    rf"(@){_HOST}(\b)",
    rf"(?i:(\b(?:on|host|hostname|nodename|machine|connect(?:ion)? to|connected to|contact(?: with)?|reach|reaching"
    rf"|answer from|response from|reply from|waiting for|ssh(?: to)?|log ?in to) ?[:=]? ?['\"]?)){_HOST}"
    r"((?:[\s,.;:)'\"]|$)|<n>)",
    rf"((?:^|[:,;'\"(\]] ?|\bthat |\band |\bas |\bbecause )){_HOST}"
    r"(['\"]? (?:(?:is|was|are|has|had|went|became|seems|stays) (?:\w+ )?(?:down|away|offline|lost|unreachable|gone"
    r"|dead|reachable|unavailable|responding|answering|drained|draining|sealed|full|busy|rebooted|rebooting"
    r"|disconnected|overloaded)|(?:did|does|do) not (?:answer|respond|reply)|refused|refuses|rejected|timed out"
    r"|disconnected|stopped (?:answering|responding)|hung up|closed (?:the|its) connection"
    r"|lost (?:the|its) (?:connection|lease|link|lock|mount|token)"
    r"|cannot be reached|could not be reached|unreachable|not responding|no longer (?:answers|responds))\b)",
)
"""Where only a host can stand: before a port or a domain, behind ``@``, ``on`` or what reaches a host, and before
what only a host does. Of each: what stands before, the name's word, its number, what follows.
"""
_OF_SLURM = r"(\b(?:JOB \S{1,40} ON|STEP \S{1,40} ON) |\bslurmstepd-|\bsrun: error: )([A-Za-z][\w-]*?)\d+(\b)"
"""Where Slurm writes a host, whatever it is called."""
_OWN_NUMBER = frozenset(
    b"""
    float bfloat complex int uint long double fp bf tf nf fx byte bit bits char word str
    conv bn fc linear layer block stage dim axis mat head attn in input out output arg args param alpha beta level opset
    cuda cudnn cu nccl rocm sm compute gfx rtx gtx titan tesla mi tpu npu cpu core numa socket
    mlx ib eth ens eno roce port channel ring stream
    python py pip cp abi gcc cxx clang glibc openmpi mpich pmi perl ruby java jdk sqlite urllib jinja numpy torch
    tensorflow keras cv opencv lxml xml yaml json dsl sha md crc utf ascii iso base utc gmt
    ipv ip tcp udp http https tls ssl tlsv sslv oauth hdf parquet avro mp log exp atan sin cos sqrt norm relu pool
    ec ver version rev tag release ext xfs zfs nfs btrfs raid lz bzip bz gzip zst tar
    gpt llama bert roberta albert deberta resnet resnext densenet vgg vit swin clip unet yolo qwen mistral mixtral
    gemma phi mamba bloom opt falcon mobilenet inception wav cifar imagenet mnist wmt squad glue sst mc
    ubuntu centos rhel rocky debian fedora sles el win windows macos linux
    line col column row page section figure table chapter test case script main experiment model train eval group
    error err errno code exit status signal sig xid ret rc response enospc phase mode type class label cell zero optim
    """.split()
)
"""Words that have numbers of their own, which are never a host's for us."""


def normalised(line: bytes, nodes: Sequence[str]) -> bytes:
    """The line without what changes from run to run: numbers, paths, addresses, times, nodes named like `nodes`, hosts.

    >>> normalised(b"vault 7 lost shard37 on node17, built for sm_90 with CUDA12", ())
    b'vault <n> lost shard<n> on node<n>, built for sm_90 with CUDA12'
    >>> normalised(b"StoreError: vault5 refused it with HTTP 503", ())
    b'StoreError: vault<n> refused it with HTTP 503'
    """
    text = mask(capturing(_CODE).sub(lambda found: found[1] + found[2].translate(_HIDE) + found[3], line))
    for stem in sorted({node.rstrip("0123456789") for node in nodes} - {""}):
        text = compiled(rf"\b{re2.escape(stem)}\d+\b").sub(b"<node>", text)
    if not _DIGITS.isdisjoint(text):
        text = capturing(_OF_SLURM).sub(rb"\1\2<n>\3", text)
        for place in _PLACES:
            text = capturing(place).sub(_without_number, text)
        text = capturing(_PADDED).sub(rb"\1<n>", capturing(_NUMBERED).sub(rb"\1<n>", text))
    return text.translate(_SHOW)


def _without_number(found: Any) -> bytes:
    before, word, number, after = found.groups()
    is_own = word.startswith(b"lib") or not _OWN_NUMBER.isdisjoint({word, word.rsplit(b"-", 1)[-1]})
    return bytes(before + word + (number if is_own else b"<n>") + after)
