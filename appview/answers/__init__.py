"""What more than one face answers with: searches and lists done, without the spelling of any of them."""
