"""What requests and answers look like on the wire. Every field says its unit and shows an example."""
