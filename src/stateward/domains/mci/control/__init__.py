"""Control loops: reconciling records with providers, rolling VM states up into MCIs, finding orphans."""
