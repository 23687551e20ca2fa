"""Learned weights against single-task training and fixed weights, over data sets and tasks.

    python -m benchmarks.regret --data data                      # everything; days on two cores
    python -m benchmarks.regret --data data --minutes 30         # half an hour of it, then a report
    python -m benchmarks.regret --data data --only acl_arc --methods single fixed meta --seeds 2
    python -m benchmarks.regret --data data --no-run             # the report alone

``--data`` is a folder with the data sets as folders that auxlearn reads (``auxlearn data check``
says whether it does): citation_intent, sst2, imdb, ohsumed, mnli, qqp; ``pydocs`` is built in.
Every setting is a sweep in the output folder, so that the same command resumes. The report goes by
what has finished.

* **regret**: test score of the best fixed alpha, chosen on dev from 0 (single task) to 0.9, minus
  that of a rule. What the rule costs one who would otherwise have searched for alpha.
* **harm**: test score of single-task training minus that of a rule, in standard errors.
"""
