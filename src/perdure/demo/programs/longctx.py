"""Needs a kernel package that is not installed where it runs."""

from mini import hello, pause, say

hello("long context, 128k tokens")
pause(0.3)
from nimbus_attention import flash

say(f"attention kernel {flash.__name__}")
