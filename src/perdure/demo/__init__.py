"""The demonstration workload: small real programs that really run and really fail.

`workload` says what arrives when, `workspace` lays out the files it needs, `driver.drive` lets it arrive.
"""
