"""What other programs say of failures, as exception records: one file a format, text in and records out.

`registry` knows the formats and is what the rest of Perdure uses; `bridged` makes records of facts; `fields` reads
single values that anybody may have written, and `documents` JSON; `causes` names what a program's end means.
"""
