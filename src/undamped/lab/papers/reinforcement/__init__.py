"""Reinforcement learning with any of the recurrent networks as an agent's memory: PPO on MiniGrid.

torch-ac and sb3-contrib were looked at first. Both hold an agent's memory in tensors of fixed size
and go through time step by step while they learn; a MemLSTM's memory grows, and our networks take
whole episodes in one pass. So here is PPO itself, in four short files.
"""
