"""Models as C99 for microcontrollers: no allocation, no files, no library but math.h."""
