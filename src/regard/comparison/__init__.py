"""Several models side by side: trained or loaded, measured on the same sentences, in one table and one picture."""
