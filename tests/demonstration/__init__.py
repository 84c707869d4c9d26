"""The live demonstration: scenes played by real processes of the command line, told and checked."""
