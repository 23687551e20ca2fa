"""What tasks and losses share: base class, context, masking, perturbation."""
