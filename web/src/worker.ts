/** What takes long, off the thread that draws. */

export {};
