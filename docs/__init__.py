"""Pages and notebooks, and in `website` what makes a site of them."""
