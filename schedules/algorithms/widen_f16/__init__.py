"""f16 operands widened to f32 as they are packed."""
