"""Does training with an auxiliary task help over a whole run, and can a rule find out on dev?

    python -m benchmarks.horizon --data data --minutes 30       # tiny; the same command resumes
    python -m benchmarks.horizon --data data --encoder DIR      # a pretrained encoder
    python -m benchmarks.horizon --no-run --page docs/results/learned_weights.md

``--data`` is a folder with the data sets as folders that auxlearn reads: citation_intent, sst2,
qqp, ohsumed; ``pydocs`` is built in. A draw of a setting draws its training and dev examples
from the union of both splits; what is left is the unlabelled corpus, or the related labelled set.
For each draw the single task is trained with several seeds, and the auxiliary task with fixed
shares and mixings. Dev and test probabilities of the best checkpoint are kept, so that
rules that choose among these runs on dev are compared on the same runs.

Whether a setting has something to gain is decided by draws of its own (``FOR_KIND``), by no rule
and none of the draws that rules are scored on.
"""
