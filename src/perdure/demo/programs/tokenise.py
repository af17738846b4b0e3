"""Calls the site's tokeniser, which was installed without the right to run it."""

import subprocess

from mini import SHARED, hello, pause, say

tool = SHARED / "bin" / "tokenise.sh"
hello("tokenise the corpus")
say(f"running {tool}")
pause(0.4)
subprocess.run([str(tool), "corpus.txt"], check=True)
say("finished")
