"""Records of this family."""
