"""How things are remembered, whatever a store is made of: the rules of writing, and the lines of the audit.

Stores differ in where they keep their rows, never in what they allow or in what the audit says.
"""
